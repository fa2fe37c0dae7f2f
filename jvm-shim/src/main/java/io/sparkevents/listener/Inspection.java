package io.sparkevents.listener;

import io.sparkevents.queue.Record;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.IntStream;
import org.apache.spark.JobExecutionStatus;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkJobInfo;

/**
 * Work that is currently running: the answer to the sidecar, which asks for it when a deadline has passed.
 *
 * <p>The answer passes through Spark's listener bus, so that it follows all events that Spark posted earlier.
 * Therefore, work that has ended is never reported as running. If the bus drops the answer, the sidecar asks again.
 */
public final class Inspection extends BusEvent {
  private final long asked;
  private final String overdue;
  private final List<Map<String, Object>> queries;
  /** Ids of the running jobs, each followed by the ids of the job's stages. */
  private final List<int[]> jobs = new ArrayList<>();
  private final Set<Integer> activeStages = new HashSet<>();

  /**
   * Answers a request with {@code asked} (its time), {@code overdue} (the reported deadlines, returned unchanged),
   * {@code runs} (query runs whose frames are requested) and {@code jobs} (ids of jobs that may still be running).
   */
  public static void answer(Map<?, ?> question, QueryThreads threads) {
    SparkContext running = runningContext();
    if (running != null) {
      running.listenerBus().post(new Inspection(question, threads, running));
    }
  }

  private Inspection(Map<?, ?> question, QueryThreads threads, SparkContext context) {
    asked = ((Number) question.get("asked")).longValue();
    overdue = String.valueOf(question.get("overdue"));
    queries = threads.look(String.valueOf(question.get("runs")));
    for (int stage : context.statusTracker().getActiveStageIds()) {
      activeStages.add(stage);
    }
    for (Object id : (List<?>) question.get("jobs")) {
      int job = ((Number) id).intValue();
      SparkJobInfo info = ApplicationRecords.orNull(context.statusTracker().getJobInfo(job));
      if (info != null && info.status() == JobExecutionStatus.RUNNING) {
        jobs.add(IntStream.concat(IntStream.of(job), IntStream.of(info.stageIds())).toArray());
      }
    }
  }

  /** Returns the record. The restore state keeps the last record, because it contains the reported deadlines. */
  public Record record(RunningWork running) {
    Record.Body work = running.snapshot(activeStages);
    return new Record(
        "inspection",
        Record.Priority.LIFECYCLE,
        Record.Change.keep(running.inspection, Record.Rank.RUN),
        json -> {
          Record.write(json, "asked", asked, "overdue", overdue, "queries", queries, "jobs", jobs);
          work.writeTo(json);
        },
        Text.length(overdue, String.valueOf(queries)));
  }
}
