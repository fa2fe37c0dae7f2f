package io.sparkevents.listener;

import io.sparkevents.config.Settings;
import io.sparkevents.queue.HandoffQueue;
import io.sparkevents.queue.Record;
import io.sparkevents.queue.SyncBarrier;

/** Receiver of a listener's records, with its queue and settings. */
public abstract class RecordSink {
  public final Settings settings;
  public final HandoffQueue queue;
  protected final SyncBarrier barrier;

  protected RecordSink(Settings settings) {
    this.settings = settings;
    queue = new HandoffQueue(settings.queueSize);
    barrier = new SyncBarrier(settings, queue, this::isEnding);
  }

  /** Whether the application is ending. Called on the listener thread before it waits for a reporter. */
  protected abstract boolean isEnding();

  /** Enqueues one record; waits for the reporters' answers if the settings require this. */
  public void hand(Record record) {
    barrier.pass(record);
  }

  /**
   * Enqueues the record that the application has ended; unless it is provisional, delivers all records before
   * returning.
   */
  public abstract void end(ApplicationEnd end);
}
