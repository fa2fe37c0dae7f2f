package io.sparkevents;

import java.util.List;
import java.util.function.Supplier;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
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
  private final Destination destination;
  /** Which one it leaves, null: it stays. */
  private SparkContext leaves;
  private final Records records;
  private final StageRecords stages;
  private final SqlRecords sql;
  private boolean complained;

  /** Called by Spark, before the application starts; what is made by this goes into Spark's shared queue. */
  public EventsListener(SparkConf conf) {
    this(conf, Connection.open(conf), StartingContext.of(conf));
  }

  private EventsListener(SparkConf conf, Connection connection, SparkContext starting) {
    this(conf, isReplaced(conf, connection, starting) ? null : connection);
    leaves = destination == null ? starting : null;
  }

  /** Whether another one is in a better queue, and tells what this one would have told. */
  private static boolean isReplaced(SparkConf conf, Connection connection, SparkContext starting) {
    if (connection == null || starting == null || connection.listenerQueue == ListenerQueue.SHARED) {
      return false;
    }
    connection.listenerQueue.add(starting, new EventsListener(conf, connection));
    return true;
  }

  EventsListener(SparkConf conf, Destination destination) {
    Redaction redaction = new Redaction(conf.get("spark.redaction.regex", Redaction.SPARK_DEFAULT));
    JobProperties properties = new JobProperties(redaction);
    this.destination = destination;
    records = new Records(conf, redaction, properties);
    stages = new StageRecords(conf, properties);
    sql = new SqlRecords(redaction);
    if (destination != null) {
      SqlShell.watch();
    }
  }

  @Override
  public void onApplicationStart(SparkListenerApplicationStart event) {
    if (leaves != null) {
      leave();
    }
    hand(() -> records.applicationStart(event));
  }

  /** On a thread of its own: a queue whose last listener goes ends, and waits for the thread that this is called by. */
  private void leave() {
    SparkContext left = leaves;
    leaves = null;
    Thread thread = new Thread(() -> left.removeSparkListener(this), "spark-events-leaves");
    thread.setDaemon(true);
    thread.start();
  }

  /** The application as it would have been told at its start, for one who came later. */
  Record application(SparkContext context) {
    return records.application(context);
  }

  @Override
  public void onApplicationEnd(SparkListenerApplicationEnd event) {
    if (destination == null) {
      return;
    }
    Record last;
    try {
      last = records.applicationEnd(event);
    } catch (Throwable defect) {
      complainOnce(defect);
      // The outcome is unknown then, but the sidecar must still end.
      last = Records.applicationGone();
    }
    try {
      destination.close(last);
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
    handAll(() -> stages.completed(event));
  }

  @Override
  public void onTaskStart(SparkListenerTaskStart event) {
    // No capture here, nor below: there may be thousands of tasks a second.
    if (destination == null) {
      return;
    }
    try {
      for (Record record : stages.taskStarted(event)) {
        destination.hand(record);
      }
    } catch (Throwable defect) {
      complainOnce(defect);
    }
  }

  @Override
  public void onTaskEnd(SparkListenerTaskEnd event) {
    if (destination == null) {
      return;
    }
    try {
      for (Record record : stages.taskEnded(event)) {
        destination.hand(record);
      }
    } catch (Throwable defect) {
      complainOnce(defect);
    }
  }

  @Override
  public void onExecutorRemoved(SparkListenerExecutorRemoved event) {
    handAll(() -> stages.executorRemoved(event));
  }

  @Override
  public void onOtherEvent(SparkListenerEvent event) {
    if (event instanceof Marker) {
      ((Marker) event).passes(this);
      return;
    }
    hand(() -> other(event));
  }

  private Record other(SparkListenerEvent event) {
    if (event instanceof AddedEvent) {
      return ((AddedEvent) event).record();
    }
    return SqlRecords.isExecution(event) ? sql.of(event) : StreamingRecords.of(event);
  }

  /** What a callback captures; null where the event is none of ours. */
  private interface Capture {
    Record get();
  }

  private void hand(Capture capture) {
    if (destination == null) {
      return;
    }
    try {
      Record record = capture.get();
      if (record != null) {
        destination.hand(record);
      }
    } catch (Throwable defect) {
      complainOnce(defect);
    }
  }

  private void handAll(Supplier<List<Record>> capture) {
    if (destination == null) {
      return;
    }
    try {
      for (Record record : capture.get()) {
        destination.hand(record);
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
