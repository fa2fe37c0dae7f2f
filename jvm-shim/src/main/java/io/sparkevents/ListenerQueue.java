package io.sparkevents;

import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.LiveListenerBus;
import org.apache.spark.scheduler.SparkListenerInterface;

/**
 * In which of Spark's listener queues we listen. Each has a thread, which Spark wakes for every event it has slept
 * before: the one for everybody's listeners, which is often there for us alone, costs a job of tiny tasks some per cent,
 * and the one of Spark's own executor management is awake anyhow.
 */
enum ListenerQueue {
  /** For everybody's listeners: who waits here holds up no listener of Spark's. */
  SHARED("shared") {
    @Override
    void add(LiveListenerBus bus, SparkListenerInterface listener) {
      bus.addToSharedQueue(listener);
    }
  },
  /** Of Spark's executor management, whose listeners are quick; ours never waits here before the application's end. */
  MANAGEMENT("executorManagement") {
    @Override
    void add(LiveListenerBus bus, SparkListenerInterface listener) {
      bus.addToManagementQueue(listener);
    }
  };

  private final String name;

  ListenerQueue(String name) {
    this.name = name;
  }

  static ListenerQueue of(Settings settings) {
    return settings.waitsForAny() ? SHARED : MANAGEMENT;
  }

  final void add(SparkContext context, SparkListenerInterface listener) {
    add(context.listenerBus(), listener);
  }

  abstract void add(LiveListenerBus bus, SparkListenerInterface listener);

  /** Spark's own, of the events that this queue had no room for. */
  final String dropsMetric() {
    return "LiveListenerBus.queue." + name + ".numDroppedEvents";
  }
}
