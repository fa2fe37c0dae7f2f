package io.sparkevents.listener;

import io.sparkevents.config.Settings;
import io.sparkevents.queue.RecordQueue;
import io.sparkevents.queue.SyncBarrier;

/** Destination of a listener's records: the queue, the barrier in front of the queue, and the settings of both. */
public abstract class RecordSink {
  public final Settings settings;
  public final RecordQueue queue;
  public final SyncBarrier barrier;

  protected RecordSink(Settings settings) {
    this.settings = settings;
    queue = new RecordQueue(settings.queueSize);
    barrier = new SyncBarrier(settings, queue, this::isEnding);
  }

  /** Whether the application is ending. Called on the listener thread before it waits for a reporter. */
  protected abstract boolean isEnding();

  /**
   * Enqueues the record that the application has ended; unless it is provisional, delivers all records before
   * returning.
   */
  public abstract void end(ApplicationEnd end);
}
