package io.sparkevents;

import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.SparkListenerInterface;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * In which of Spark's listener queues we listen. Each has a thread, which Spark wakes for every event it has slept
 * before: the one for everybody's listeners, which is often there for us alone, costs a job of tiny tasks some per cent,
 * and the one of Spark's own executor management is awake anyhow.
 */
enum ListenerQueue {
  /** For everybody's listeners: who waits here holds up no listener of Spark's. */
  SHARED("shared"),
  /** Of Spark's executor management, whose listeners are quick; ours never waits here before the application's end. */
  MANAGEMENT("executorManagement");

  private static final Logger LOG = LoggerFactory.getLogger(EventsListener.class);

  private final String name;

  ListenerQueue(String name) {
    this.name = name;
  }

  /** The one that suits what is configured. */
  static ListenerQueue of(Settings settings) {
    return settings.waitsForAny() ? SHARED : MANAGEMENT;
  }

  /**
   * Adds a listener to this queue, or to the shared one where a Spark that is not Apache's has no other.
   *
   * @return the queue that it is in
   */
  ListenerQueue add(SparkContext context, SparkListenerInterface listener) {
    if (this == MANAGEMENT) {
      try {
        context.listenerBus().addToManagementQueue(listener);
        return this;
      } catch (LinkageError notThisSpark) {
        LOG.debug("spark-events: this Spark does not let us choose a listener queue", notThisSpark);
      }
    }
    context.addSparkListener(listener);
    return SHARED;
  }

  /** Spark's own, of the events that this queue had no room for. */
  String dropsMetric() {
    return "LiveListenerBus.queue." + name + ".numDroppedEvents";
  }
}
