package io.sparkevents.listener;

import io.sparkevents.config.Settings;
import io.sparkevents.queue.DropCounters;
import io.sparkevents.queue.QueueConfig;
import io.sparkevents.queue.Record;
import io.sparkevents.queue.RecordQueue;
import io.sparkevents.queue.SyncBarrier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Destination of a listener's records: the queue, the barrier in front of the queue, and the settings of both. */
public abstract class RecordSink {
  private static final Logger LOG = LoggerFactory.getLogger(RecordSink.class);

  public final Settings settings;
  public final RecordQueue queue;
  public final SyncBarrier barrier;
  private boolean warnedOfFullness;
  private boolean warnedOfLoss;

  protected RecordSink(Settings settings) {
    this.settings = settings;
    queue = new RecordQueue(QueueConfig.of(settings.queueSize));
    barrier = new SyncBarrier(settings, queue, this::isEnding);
  }

  /** Whether the application is ending. Called on the listener thread before it waits for a reporter. */
  protected abstract boolean isEnding();

  /** Enqueues a record, after the barrier's wait if Spark waits for reporters. Called by the listener thread. */
  final void put(Record record) {
    if (settings.waitsForAny) {
      barrier.pass(record);
    } else {
      queue.offer(record);
    }
    if (!warnedOfFullness && queue.usage.wasNearlyFull()) {
      warnedOfFullness = true;
      LOG.warn(
          "[spark-events] the record queue is 90 % full, because the sidecar is slower than Spark; a full queue drops the"
              + " least important records first; raise spark.events.dispatcher.queue.size = {} or the driver's memory, or"
              + " give the driver more CPU",
          queue.capacity);
    }
  }

  /** Counts an event of Spark that cannot be recorded, and logs the first one. Called by the listener thread. */
  final void lost(Throwable defect) {
    try {
      queue.drops.count(DropCounters.UNWRITABLE, "event", 1);
      if (!warnedOfLoss) {
        warnedOfLoss = true;
        LOG.error(
            "[spark-events] cannot record a Spark event; it is lost and counted; later losses are counted, not logged;"
                + " report this",
            defect);
      }
    } catch (Throwable again) {
      // Memory is low, or an appender throws; no error may reach Spark.
    }
  }

  /**
   * Enqueues the record that the application has ended; unless it is provisional, delivers all records before
   * returning.
   */
  public abstract void end(ApplicationEnd end);
}
