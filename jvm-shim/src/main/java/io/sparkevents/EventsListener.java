package io.sparkevents;

import io.sparkevents.listener.RecordSink;
import io.sparkevents.listener.RecordingListener;
import io.sparkevents.sidecar.Connections;
import org.apache.spark.SparkConf;

/** Passes Spark's events to the sidecar: {@code spark.extraListeners=io.sparkevents.EventsListener}. */
public final class EventsListener extends RecordingListener {
  /**
   * Called by Spark before the application starts. A program may also add a listener to its running application, with
   * {@code sc.addSparkListener(new EventsListener(sc.getConf()))}.
   */
  public EventsListener(SparkConf conf) {
    this(conf, Connections.open(conf));
  }

  /** @param sink receives the records; null if this listener must not report events */
  public EventsListener(SparkConf conf, RecordSink sink) {
    super(conf, sink);
  }
}
