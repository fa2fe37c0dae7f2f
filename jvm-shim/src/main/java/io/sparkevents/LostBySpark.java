package io.sparkevents;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.InputStream;
import java.lang.management.ManagementFactory;
import java.net.HttpURLConnection;
import java.net.URL;
import java.util.Iterator;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import javax.management.JMException;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import org.apache.spark.SparkContext;
import scala.Option;

/**
 * Watches how many events Spark itself has dropped before its listeners saw them.
 *
 * <p>Spark has no call that says so, only a metric, which it shows in two places that are public: as an
 * MBean where a JmxSink is configured, and below {@code /metrics/json} of its UI, where it always is.
 * Asked for on a thread of its own; a place that does not answer is not asked for ever.
 */
final class LostBySpark {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final long MBEAN_MILLIS = 1_000;
  private static final long PAGE_MILLIS = 5_000;
  private static final int PATIENCE_MILLIS = 2_000;
  /** While the application starts, the UI's pages are not what they are later. */
  private static final int MOST_REFUSALS = 5;

  private final HandoffQueue queue;
  private final String metric;
  private final MBeanServer beans = ManagementFactory.getPlatformMBeanServer();
  private final CountDownLatch stopped = new CountDownLatch(1);
  private URL page;
  private int refusals;
  private long known;

  private LostBySpark(HandoffQueue queue, String metric, Option<String> ui) {
    this.queue = queue;
    this.metric = metric;
    try {
      page = ui.isDefined() ? new URL(ui.get() + "/metrics/json/") : null;
    } catch (IOException notAnAddress) {
      page = null;
    }
  }

  static LostBySpark watch(HandoffQueue queue, ListenerQueue listeners, SparkContext spark) {
    LostBySpark watch = new LostBySpark(queue, listeners.dropsMetric(), spark.uiWebUrl());
    Thread thread = new Thread(watch::run, "spark-events-listener-queue");
    thread.setDaemon(true);
    thread.start();
    return watch;
  }

  /** Looks for the last time. The UI is gone by now, the MBean is not. */
  void stop() {
    stopped.countDown();
    look(fromBean());
  }

  private void run() {
    try {
      long pause = MBEAN_MILLIS;
      while (!stopped.await(pause, TimeUnit.MILLISECONDS)) {
        long lost = fromBean();
        pause = MBEAN_MILLIS;
        if (lost < 0) {
          if (page == null) {
            return;
          }
          lost = fromPage();
          pause = PAGE_MILLIS;
        }
        look(lost);
      }
    } catch (InterruptedException end) {
      Thread.currentThread().interrupt();
    }
  }

  private synchronized void look(long lost) {
    if (lost > known) {
      queue.countDropped(Drops.LISTENER_QUEUE, "event", lost - known);
      known = lost;
    }
  }

  private long fromBean() {
    try {
      for (ObjectName name : beans.queryNames(new ObjectName("metrics:name=*." + metric + ",*"), null)) {
        return ((Number) beans.getAttribute(name, "Count")).longValue();
      }
    } catch (JMException | RuntimeException notThere) {
      return -1;
    }
    return -1;
  }

  private long fromPage() {
    try {
      HttpURLConnection connection = (HttpURLConnection) page.openConnection(java.net.Proxy.NO_PROXY);
      connection.setConnectTimeout(PATIENCE_MILLIS);
      connection.setReadTimeout(PATIENCE_MILLIS);
      connection.setInstanceFollowRedirects(false);
      try (InputStream text = connection.getInputStream()) {
        JsonNode counters = JSON.readTree(text).path("counters");
        for (Iterator<String> names = counters.fieldNames(); names.hasNext(); ) {
          String name = names.next();
          if (name.endsWith(metric)) {
            refusals = 0;
            return counters.path(name).path("count").asLong(-1);
          }
        }
      }
    } catch (IOException | RuntimeException refused) {
      // Behind a login, a proxy, a certificate of its own: without the MBean it cannot be known.
      refusals++;
    }
    page = refusals < MOST_REFUSALS ? page : null;
    return -1;
  }
}
