package io.sparkevents.listener;

import java.util.concurrent.CountDownLatch;

/** Marker on the listener bus. A listener that has received it has received all events posted before it. */
public final class Marker extends BusEvent {
  private final Object listener;
  public final CountDownLatch passed = new CountDownLatch(1);

  /**
   * @param listener the listener to wait for; other listeners may receive the marker earlier
   */
  public Marker(Object listener) {
    this.listener = listener;
  }

  public void passes(Object by) {
    if (by == listener) {
      passed.countDown();
    }
  }
}
