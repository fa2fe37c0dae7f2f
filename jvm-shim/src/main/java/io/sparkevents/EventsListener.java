package io.sparkevents;

import java.util.List;
import java.util.Map;
import org.apache.spark.SparkConf;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerApplicationEnd;
import org.apache.spark.scheduler.SparkListenerApplicationStart;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.apache.spark.scheduler.SparkListenerJobEnd;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.SparkListenerTaskStart;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Hands what happens in Spark to the sidecar: {@code spark.extraListeners=io.sparkevents.EventsListener}.
 *
 * <p>Every callback captures a few values, offers them to a bounded queue and returns. Nothing thrown
 * here may leave it: an Error that escapes a listener stops the SparkContext.
 */
public final class EventsListener extends SparkListener {
  private static final Logger LOG = LoggerFactory.getLogger(EventsListener.class);

  private HandoffQueue queue;
  private Sidecar sidecar;
  private SyncGate gate;
  private Records records;
  private StageRecords stages;
  private Thread exitHook;
  private boolean complained;

  /** Called by Spark, before the application starts. */
  public EventsListener(SparkConf conf) {
    Settings settings = null;
    String failure;
    try {
      settings = Settings.read(conf, System.getenv());
      failure = start(settings, conf, System.getenv());
    } catch (Throwable defect) {
      failure = defect.toString();
      LOG.error("spark-events: cannot start, the job goes on without events", defect);
    }
    if (failure != null && settings != null && settings.required()) {
      close();
      throw new IllegalStateException(
          "spark-events cannot start, and spark.events.required is true. " + failure);
    }
  }

  /** Returns why there will be no events, or null. */
  private String start(Settings settings, SparkConf conf, Map<String, String> environment)
      throws InterruptedException {
    if (settings.problem() != null) {
      LOG.error("spark-events: no events will be reported, {}", settings.problem());
      return settings.problem();
    }
    if (!settings.sidecarEnabled()) {
      return null;
    }
    List<Interpreter> candidates = Interpreter.candidates(settings, conf, environment);
    queue = new HandoffQueue(settings.queueSize());
    gate = new SyncGate(queue, settings.synchronous() ? settings.syncTimeoutMillis() : 0);
    Redaction redaction = new Redaction(conf.get("spark.redaction.regex", Redaction.SPARK_DEFAULT));
    JobProperties properties = new JobProperties(redaction);
    records = new Records(conf, redaction, properties);
    stages = new StageRecords(properties);
    sidecar = new Sidecar(settings, candidates, queue);
    sidecar.start();
    MainThread.watch();
    exitHook = new Thread(() -> queue.offer(Records.jvmShutdown()), "spark-events-exit");
    Runtime.getRuntime().addShutdownHook(exitHook);
    return settings.required() ? sidecar.awaitStarted() : null;
  }

  @Override
  public void onApplicationStart(SparkListenerApplicationStart event) {
    hand(() -> records.applicationStart(event));
  }

  @Override
  public void onApplicationEnd(SparkListenerApplicationEnd event) {
    hand(() -> records.applicationEnd(event));
    close();
  }

  @Override
  public void onJobStart(SparkListenerJobStart event) {
    hand(() -> records.jobStart(event));
  }

  @Override
  public void onJobEnd(SparkListenerJobEnd event) {
    hand(() -> records.jobEnd(event));
  }

  @Override
  public void onStageSubmitted(SparkListenerStageSubmitted event) {
    hand(() -> stages.submitted(event));
  }

  @Override
  public void onStageCompleted(SparkListenerStageCompleted event) {
    hand(() -> stages.completed(event));
  }

  @Override
  public void onTaskStart(SparkListenerTaskStart event) {
    hand(() -> stages.taskStarted(event));
  }

  @Override
  public void onTaskEnd(SparkListenerTaskEnd event) {
    hand(() -> stages.taskEnded(event));
  }

  @Override
  public void onExecutorRemoved(SparkListenerExecutorRemoved event) {
    hand(() -> stages.executorRemoved(event));
  }

  @Override
  public void onOtherEvent(SparkListenerEvent event) {
    hand(() -> StreamingRecords.of(event));
  }

  /** What a callback captures; null where the event is none of ours. */
  private interface Capture {
    Record get();
  }

  private void hand(Capture capture) {
    if (queue == null) {
      return;
    }
    try {
      Record record = capture.get();
      if (record != null) {
        gate.pass(queue.offer(record));
      }
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
    } catch (Throwable defect) {
      complainOnce(defect);
    }
  }

  private void close() {
    if (sidecar == null) {
      return;
    }
    try {
      sidecar.finish();
      Runtime.getRuntime().removeShutdownHook(exitHook);
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
    } catch (IllegalStateException alreadyShuttingDown) {
      // The hook finds the queue closed.
    } catch (Throwable defect) {
      complainOnce(defect);
    }
  }

  private void complainOnce(Throwable defect) {
    if (!complained) {
      complained = true;
      LOG.error("spark-events: a record was lost to a defect, further ones are not logged", defect);
    }
  }
}
