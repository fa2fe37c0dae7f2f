package io.sparkevents.listener;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.spark.scheduler.SparkListenerEvent;

/** Goes over the listener bus behind everything that happened before; who has seen it has seen that, too. */
public final class Marker implements SparkListenerEvent {
  private final Object listener;
  private final CountDownLatch passed = new CountDownLatch(1);

  /** @param listener the one that it is meant for: others may see it earlier */
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

  public boolean await(long millis) throws InterruptedException {
    return passed.await(millis, TimeUnit.MILLISECONDS);
  }
}
