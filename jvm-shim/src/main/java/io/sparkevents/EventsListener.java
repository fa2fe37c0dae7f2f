package io.sparkevents;

import io.sparkevents.listener.AddedEvent;
import io.sparkevents.listener.ApplicationEnd;
import io.sparkevents.listener.ApplicationRecords;
import io.sparkevents.listener.ApplicationTotals;
import io.sparkevents.listener.Inspection;
import io.sparkevents.listener.JobProperties;
import io.sparkevents.listener.JobRecords;
import io.sparkevents.listener.Marker;
import io.sparkevents.listener.RecordSink;
import io.sparkevents.listener.Redaction;
import io.sparkevents.listener.RunningWork;
import io.sparkevents.listener.SqlRecords;
import io.sparkevents.listener.SqlShell;
import io.sparkevents.listener.StageRecords;
import io.sparkevents.listener.Stages;
import io.sparkevents.listener.StreamingRecords;
import io.sparkevents.queue.DropCounters;
import io.sparkevents.queue.Record;
import io.sparkevents.sidecar.Connection;
import java.util.Properties;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.executor.ExecutorMetrics;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerApplicationEnd;
import org.apache.spark.scheduler.SparkListenerApplicationStart;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.scheduler.SparkListenerExecutorAdded;
import org.apache.spark.scheduler.SparkListenerExecutorMetricsUpdate;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.apache.spark.scheduler.SparkListenerJobEnd;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.SparkListenerTaskStart;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.collection.Iterator;

/**
 * Passes Spark's events to the sidecar as records: {@code spark.extraListeners=io.sparkevents.EventsListener}.
 *
 * <p>Every callback captures a few values, offers them to a bounded queue and returns. Callbacks catch every Throwable,
 * because an Error that escapes a listener stops the SparkContext.
 */
public final class EventsListener extends SparkListener {
  private static final Logger LOG = LoggerFactory.getLogger(EventsListener.class);

  /** Connection to the sidecar; null if this listener must not report events. */
  private final RecordSink destination;
  private final ApplicationRecords applications;
  private final ApplicationTotals totals;
  private final RunningWork running;
  private final StageRecords stages;
  private final SqlRecords sql;
  private final JobRecords jobs;
  private boolean ended;
  private boolean complained;
  private boolean warnedOfFullness;

  /**
   * Called by Spark before the application starts. A program may also add a listener to its running application, with
   * {@code sc.addSparkListener(new EventsListener(sc.getConf()))}.
   */
  public EventsListener(SparkConf conf) {
    this(conf, Connection.open(conf));
  }

  public EventsListener(SparkConf conf, RecordSink destination) {
    Redaction redaction = Redaction.of(conf);
    JobProperties properties = new JobProperties(redaction);
    this.destination = destination;
    applications = new ApplicationRecords(conf, redaction);
    Stages attempts = new Stages(this::hand);
    totals = new ApplicationTotals(conf, destination == null ? 0 : destination.settings.summaryIntervalMillis, attempts);
    running = new RunningWork(attempts, properties, totals);
    stages = new StageRecords(conf, properties, totals, attempts, running);
    sql = new SqlRecords(redaction);
    jobs = new JobRecords(this::hand, destination != null && !destination.settings.reportsMicroBatches, properties);
    if (destination != null) {
      SqlShell.watch();
    }
  }

  @Override
  public void onApplicationStart(SparkListenerApplicationStart event) {
    run(() -> {
      totals.started(event.time());
      hand(applications.applicationStart(event));
    });
  }

  /** Returns the start record of an application that was already running when this listener was added. */
  public Record application(SparkContext context) {
    return applications.application(context);
  }

  @Override
  public void onApplicationEnd(SparkListenerApplicationEnd event) {
    if (destination != null) {
      ApplicationEnd end = end(event);
      run(jobs::flush);
      run(() -> hand(totals.record(event.time(), true)));
      ended = true;
      run(() -> destination.end(end));
    }
  }

  private ApplicationEnd end(SparkListenerApplicationEnd event) {
    try {
      return ApplicationEnd.of(event);
    } catch (Throwable defect) {
      lost(defect);
      // Without the evidence, the outcome is unknown, but the sidecar must still shut down.
      return ApplicationEnd.unknown();
    }
  }

  @Override
  public void onJobStart(SparkListenerJobStart event) {
    run(() -> jobs.began(jobs.startRecord(event), event.properties()));
  }

  @Override
  public void onJobEnd(SparkListenerJobEnd event) {
    run(() -> {
      Throwable failure = JobRecords.failure(event);
      jobs.jobEnded(jobs.endRecord(event, failure), failure != null);
      totals.jobEnded(failure != null);
      hand(totals.recordIfDue(event.time()));
    });
  }

  @Override
  public void onStageSubmitted(SparkListenerStageSubmitted event) {
    run(() -> {
      // Spark retries a stage only after a failure. A retried attempt is always recorded.
      boolean isFirst = event.stageInfo().attemptNumber() == 0;
      Properties local = isFirst && jobs.holdsBack(event.properties()) ? event.properties() : null;
      jobs.began(stages.submitted(event, local == null), local);
    });
  }

  @Override
  public void onStageCompleted(SparkListenerStageCompleted event) {
    run(() -> {
      jobs.stageEnded(stages.completed(event), event.stageInfo().failureReason().isDefined());
      hand(totals.recordIfDue(StageRecords.time(event.stageInfo().completionTime())));
    });
  }

  @Override
  public void onTaskStart(SparkListenerTaskStart event) {
    run(() -> stages.taskStarted(event));
  }

  @Override
  public void onTaskEnd(SparkListenerTaskEnd event) {
    run(() -> stages.taskEnded(event));
  }

  @Override
  public void onExecutorAdded(SparkListenerExecutorAdded event) {
    run(() -> hand(running.executorAdded(event)));
  }

  @Override
  public void onExecutorRemoved(SparkListenerExecutorRemoved event) {
    run(() -> hand(running.executorRemoved(event)));
  }

  @Override
  public void onExecutorMetricsUpdate(SparkListenerExecutorMetricsUpdate event) {
    run(() -> {
      Iterator<ExecutorMetrics> peaks = event.executorUpdates().values().iterator();
      while (peaks.hasNext()) {
        totals.peaks(event.execId(), peaks.next());
      }
    });
  }

  @Override
  public void onOtherEvent(SparkListenerEvent event) {
    if (event instanceof Marker) {
      ((Marker) event).passes(this);
    } else {
      run(() -> hand(other(event)));
    }
  }

  private Record other(SparkListenerEvent event) {
    if (event instanceof AddedEvent) {
      return ((AddedEvent) event).record();
    }
    if (event instanceof Inspection) {
      return ((Inspection) event).record(running);
    }
    if (!event.getClass().getName().startsWith("org.apache.spark.sql.")) {
      // Do not use the next classes, because a driver with only Spark core cannot load them.
      return null;
    }
    Record execution = sql.of(event);
    return execution == null ? StreamingRecords.of(event) : execution;
  }

  /** Enqueues a record; null stands for an event that is not reported. */
  private void hand(Record record) {
    // After the application has ended, Spark reports only work that it stops itself.
    if (record == null || ended) {
      return;
    }
    if (destination.settings.waitsForAny) {
      destination.barrier.pass(record);
    } else {
      destination.queue.offer(record);
    }
    if (!warnedOfFullness && destination.queue.wasNearlyFull()) {
      warnedOfFullness = true;
      LOG.warn(
          "spark-events: the record queue is 90 % full, because the sidecar is slower than Spark; a full queue drops the"
              + " least important records first; raise spark.events.dispatcher.queue.size = {}, or give the driver more"
              + " CPU",
          destination.queue.capacity);
    }
  }

  private void run(Runnable callback) {
    if (destination == null) {
      return;
    }
    try {
      callback.run();
    } catch (Throwable defect) {
      lost(defect);
    }
  }

  /** Counts every event that cannot be recorded, and logs the first one. */
  private void lost(Throwable defect) {
    try {
      destination.queue.countDropped(DropCounters.UNWRITABLE, "event", 1);
      if (!complained) {
        complained = true;
        LOG.error(
            "spark-events: cannot record a Spark event; it is lost and counted; later losses are counted, not logged;"
                + " report this",
            defect);
      }
    } catch (Throwable again) {
      // Memory is low, or an appender throws; no error may reach Spark.
    }
  }
}
