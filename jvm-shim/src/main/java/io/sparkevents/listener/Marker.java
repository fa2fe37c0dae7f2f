package io.sparkevents.listener;

import java.util.concurrent.CountDownLatch;
import org.apache.spark.scheduler.SparkListenerEvent;

/** Marker on the listener bus. A listener that has received it has received all events posted before it. */
public final class Marker implements SparkListenerEvent {
  private final Object listener;
  public final CountDownLatch passed = new CountDownLatch(1);

  /**
   * @param listener the listener to wait for; other listeners may receive the marker earlier
   */
  public Marker(Object listener) {
    this.listener = listener;
  }

  @Override
  public boolean logEvent() {
    return false;
  }

  public void passes(Object by) {
    if (by == listener) {
      passed.countDown();
    }
  }
}
