package io.sparkevents;

import static io.sparkevents.Checks.is;

import io.sparkevents.listener.JobProperties;
import io.sparkevents.listener.JobRecords;
import io.sparkevents.listener.Redaction;
import io.sparkevents.queue.Record;
import io.sparkevents.queue.Subject;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.junit.jupiter.api.Test;

/** Tests of the records of jobs and stages of micro-batches. */
final class JobRecordsTest {
  /** Collector of the kinds of the records. */
  private static final class Recorder {
    final List<String> recorded = new ArrayList<>();
    final JobRecords jobs;
    private final Map<String, Subject> subjects = new HashMap<>();

    Recorder(boolean holdsBack) {
      JobProperties properties = new JobProperties(new Redaction(Redaction.SPARK_DEFAULT));
      jobs = new JobRecords(record -> recorded.add(record.kind), holdsBack, properties);
    }

    Record begin(String kind, String subject) {
      Record.Change change = Record.Change.keep(subject(subject), Record.Rank.WORK);
      return new Record(kind, Record.Priority.ROUTINE, change, json -> {});
    }

    Record end(String kind, String subject) {
      return new Record(kind, Record.Priority.ROUTINE, Record.Change.forget(subject(subject)), json -> {});
    }

    private Subject subject(String name) {
      return subjects.computeIfAbsent(name, first -> new Subject());
    }

    String take() {
      String all = recorded.toString();
      recorded.clear();
      return all;
    }
  }

  private static Properties batch(String query, int number) {
    Properties local = new Properties();
    local.setProperty("sql.streaming.queryId", query);
    local.setProperty("streaming.sql.batchId", String.valueOf(number));
    return local;
  }

  /** A batch causes one record if all its jobs and stages succeed. */
  @Test
  void aBatchThatSucceedsIsOneRecord() {
    Recorder checks = new Recorder(true);
    for (int number = 0; number < 2; number++) {
      for (int job = 0; job < 3; job++) {
        checks.jobs.began(checks.begin("job_start", "job:" + job), batch("q", number));
        checks.jobs.began(checks.begin("stage_submitted", "stage:" + job + ".0"), batch("q", number));
        checks.jobs.stageEnded(checks.end("stage_completed", "stage:" + job + ".0"), false);
        checks.jobs.jobEnded(checks.end("job_end", "job:" + job), false);
      }
    }
    is(checks.take(), "[batch_started, batch_started]");
  }

  /** A failure is recorded with its start record; later successes are not recorded. */
  @Test
  void aFailureIsRecordedFromItsBeginning() {
    Recorder checks = new Recorder(true);
    checks.jobs.began(checks.begin("job_start", "job:1"), batch("q", 7));
    checks.jobs.began(checks.begin("stage_submitted", "stage:1.0"), batch("q", 7));
    checks.take();
    checks.jobs.stageEnded(checks.end("stage_completed", "stage:1.0"), true);
    is(checks.take(), "[stage_submitted, stage_completed]");
    checks.jobs.jobEnded(checks.end("job_end", "job:1"), true);
    is(checks.take(), "[job_start, job_end]");
    for (int job = 2; job < 4; job++) {
      checks.jobs.began(checks.begin("job_start", "job:" + job), batch("q", 7));
      checks.jobs.jobEnded(checks.end("job_end", "job:" + job), false);
    }
    is(checks.take(), "[]");
  }

  /** Jobs outside micro-batches are recorded immediately, as are all jobs if the settings require this. */
  @Test
  void otherJobsAreRecordedAtOnce() {
    for (boolean holdsBack : new boolean[] {true, false}) {
      Recorder checks = new Recorder(holdsBack);
      checks.jobs.began(checks.begin("job_start", "job:1"), holdsBack ? new Properties() : batch("q", 1));
      checks.jobs.began(checks.begin("stage_submitted", "stage:1.0"), holdsBack ? null : batch("q", 1));
      checks.jobs.stageEnded(checks.end("stage_completed", "stage:1.0"), false);
      checks.jobs.jobEnded(checks.end("job_end", "job:1"), false);
      is(checks.take(), "[job_start, stage_submitted, stage_completed, job_end]");
    }
  }

  /** Before the application's end, running jobs are recorded. */
  @Test
  void runningJobsAreRecordedAtTheEnd() {
    Recorder checks = new Recorder(true);
    checks.jobs.began(checks.begin("job_start", "job:1"), batch("q", 1));
    checks.jobs.flush();
    is(checks.take(), "[batch_started, job_start]");
  }
}
