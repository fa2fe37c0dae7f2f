package io.sparkevents.listener;

import io.sparkevents.queue.Record;
import java.util.Map;
import java.util.Properties;
import java.util.function.Supplier;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.executor.ExecutorMetrics;
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
import scala.collection.Iterator;

/**
 * Passes Spark's events to a {@link RecordSink} as records, one callback for each kind.
 *
 * <p>Every callback captures a few values, hands them over and returns. Callbacks catch every Throwable, because an
 * Error that escapes a listener stops the SparkContext.
 */
public class RecordingListener extends ExclusionListener {
  /** Null if this listener must not report events. */
  private final RecordSink sink;
  private final ApplicationRecords applications;
  private final ApplicationTotals totals;
  private final RunningWork running;
  private final StageRecords stages;
  private final SqlRecords sql;
  private final StatementRecords statements;
  private final WriteRecords writes;
  private final StreamingRecords streams;
  private final JobRecords jobs;
  private boolean ended;

  /** @param sink receives the records; null if this listener must not report events */
  public RecordingListener(SparkConf conf, RecordSink sink) {
    Redaction redaction = Redaction.of(conf);
    JobProperties properties = new JobProperties(redaction);
    this.sink = sink;
    applications = new ApplicationRecords(conf, redaction);
    Stages attempts = new Stages(this::hand);
    totals = new ApplicationTotals(conf, sink == null ? 0 : sink.settings.summaryIntervalMillis, attempts);
    running = new RunningWork(attempts, properties, totals);
    stages = new StageRecords(conf, properties, totals, attempts, running);
    statements = new StatementRecords(redaction);
    writes = new WriteRecords(redaction, sink != null && sink.settings.given.isOn("events.data-written.streams.enabled"));
    streams = new StreamingRecords();
    jobs = new JobRecords(this::hand, sink != null && !sink.settings.reportsMicroBatches, properties);
    sql = new SqlRecords(redaction, jobs);
    if (sink != null) {
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

  /** Returns the start record of a query that was already running when this listener was added. */
  public Record query(String id, String runId, String name) {
    return streams.running(id, runId, name);
  }

  @Override
  public void onApplicationEnd(SparkListenerApplicationEnd event) {
    if (sink != null) {
      ApplicationEnd end = end(event);
      run(jobs::flush);
      run(() -> hand(totals.record(event.time(), true)));
      ended = true;
      run(() -> sink.end(end));
    }
  }

  private ApplicationEnd end(SparkListenerApplicationEnd event) {
    try {
      return ApplicationEnd.of(event);
    } catch (Throwable defect) {
      sink.lost(defect);
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
      Map<String, Object> peaks = failure == null ? null : totals.peaks(Failures.message(failure));
      jobs.jobEnded(jobs.endRecord(event, failure, peaks), failure != null);
      totals.jobEnded(failure == null ? null : Failures.describe(failure));
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
    run(() -> writes.stageCompleted(event.stageInfo()));
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
    Record statement = statements.of(event);
    if (statement != null) {
      return statement;
    }
    hand(writes.of(event));
    Record execution = sql.of(event);
    return execution == null ? streams.of(event) : execution;
  }

  /** Enqueues a record; null stands for an event that is not reported. */
  private void hand(Record record) {
    // After the application has ended, Spark reports only work that it stops itself.
    if (record != null && !ended) {
      sink.put(record);
    }
  }

  @Override
  protected void report(Supplier<Record> record) {
    run(() -> hand(record.get()));
  }

  private void run(Runnable callback) {
    if (sink == null) {
      return;
    }
    try {
      callback.run();
    } catch (Throwable defect) {
      sink.lost(defect);
    }
  }
}
