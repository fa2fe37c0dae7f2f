package io.sparkevents;

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

  /** Null where there is nothing to do. */
  private final Connection connection;
  private final Records records;
  private final StageRecords stages;
  private boolean complained;

  /** Called by Spark, before the application starts. */
  public EventsListener(SparkConf conf) {
    this(conf, Connection.open(conf));
  }

  EventsListener(SparkConf conf, Connection connection) {
    Redaction redaction = new Redaction(conf.get("spark.redaction.regex", Redaction.SPARK_DEFAULT));
    JobProperties properties = new JobProperties(redaction);
    this.connection = connection;
    records = new Records(conf, redaction, properties);
    stages = new StageRecords(properties);
  }

  @Override
  public void onApplicationStart(SparkListenerApplicationStart event) {
    hand(() -> records.applicationStart(event));
  }

  @Override
  public void onApplicationEnd(SparkListenerApplicationEnd event) {
    if (connection == null) {
      return;
    }
    try {
      connection.close(records.applicationEnd(event));
    } catch (Throwable defect) {
      complainOnce(defect);
    }
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
    // No capture here, nor below: there may be thousands of tasks a second.
    if (connection == null) {
      return;
    }
    try {
      Record record = stages.taskStarted(event);
      if (record != null) {
        connection.hand(record);
      }
    } catch (Throwable defect) {
      complainOnce(defect);
    }
  }

  @Override
  public void onTaskEnd(SparkListenerTaskEnd event) {
    if (connection == null) {
      return;
    }
    try {
      Record record = stages.taskEnded(event);
      if (record != null) {
        connection.hand(record);
      }
    } catch (Throwable defect) {
      complainOnce(defect);
    }
  }

  @Override
  public void onExecutorRemoved(SparkListenerExecutorRemoved event) {
    hand(() -> stages.executorRemoved(event));
  }

  @Override
  public void onOtherEvent(SparkListenerEvent event) {
    hand(() -> event instanceof AddedEvent ? ((AddedEvent) event).record() : StreamingRecords.of(event));
  }

  /** What a callback captures; null where the event is none of ours. */
  private interface Capture {
    Record get();
  }

  private void hand(Capture capture) {
    if (connection == null) {
      return;
    }
    try {
      Record record = capture.get();
      if (record != null) {
        connection.hand(record);
      }
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
