package io.sparkevents.listener;

import org.apache.spark.SparkContext;
import org.apache.spark.SparkContext$;
import org.apache.spark.scheduler.SparkListenerEvent;

/** Event of the shim on Spark's listener bus, so that listeners receive it in order with Spark's own events. */
public abstract class BusEvent implements SparkListenerEvent {
  /**
   * Excludes the event from Spark's event log, because a history server lacks its class and the content may be private.
   */
  @Override
  public boolean logEvent() {
    return false;
  }

  /** Returns the running application's context, or null. */
  public static SparkContext runningContext() {
    SparkContext active = activeContext();
    return active == null || active.isStopped() ? null : active;
  }

  /**
   * Returns the application's context; null before its constructor has returned. The context remains active while Spark
   * stops it, until all listeners have received the end of the application.
   *
   * <p>{@code SparkContext.getActive} waits for a lock that {@code SparkContext.getOrCreate} holds while the constructor
   * runs. A constructor that fails waits for the listener thread, so both would wait forever. Therefore the method reads
   * the field behind {@code getActive}. If a build of Spark lacks the field, the method calls {@code getActive}.
   */
  public static SparkContext activeContext() {
    try {
      return SparkContext$.MODULE$.org$apache$spark$SparkContext$$activeContext().get();
    } catch (LinkageError renamed) {
      return ApplicationRecords.orNull(SparkContext$.MODULE$.getActive());
    }
  }
}
