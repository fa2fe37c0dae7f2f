package io.sparkevents;

import static io.sparkevents.Checks.is;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Properties;

/** Which records of jobs and stages of micro-batches are recorded, and when. */
public final class MicroBatchWorkChecks {
  private final List<String> recorded = new ArrayList<>();
  private final MicroBatchWork work;

  private MicroBatchWorkChecks(boolean holdsBack) {
    work =
        new MicroBatchWork(
            new Destination() {
              @Override
              public void hand(Record record) {
                recorded.add(record.kind);
              }

              @Override
              public void end(ApplicationEnd end) {}
            },
            holdsBack);
  }

  private static Properties batch(String query, int number) {
    Properties local = new Properties();
    local.setProperty("sql.streaming.queryId", query);
    local.setProperty("streaming.sql.batchId", String.valueOf(number));
    return local;
  }

  private static Record begin(String kind, String subject) {
    return new Record(kind, Record.Worth.ROUTINE, Context.Change.begin(subject, Context.Rank.WORK), json -> {});
  }

  private static Record end(String kind, String subject, boolean failed) {
    Record.Worth worth = failed ? Record.Worth.LIFECYCLE : Record.Worth.ROUTINE;
    return new Record(kind, worth, Context.Change.forget(subject), json -> {});
  }

  private String take() {
    String all = recorded.toString();
    recorded.clear();
    return all;
  }

  /** A batch whose jobs and stages succeed is one record, however many there are. */
  public static void checkABatchThatSucceedsIsOneRecord() {
    MicroBatchWorkChecks checks = new MicroBatchWorkChecks(true);
    for (int number = 0; number < 2; number++) {
      for (int job = 0; job < 3; job++) {
        checks.work.began(begin("job_start", "job:" + job), batch("q", number));
        checks.work.began(begin("stage_submitted", "stage:" + job + ".0"), batch("q", number));
        checks.work.stageEnded(Collections.singletonList(end("stage_completed", "stage:" + job + ".0", false)));
        checks.work.jobEnded(end("job_end", "job:" + job, false));
      }
    }
    is(checks.take(), "[batch_started, batch_started]");
  }

  /** A failure is recorded with its beginning, and the success that comes next as well. */
  public static void checkAFailureIsRecordedFromItsBeginning() {
    MicroBatchWorkChecks checks = new MicroBatchWorkChecks(true);
    checks.work.began(begin("job_start", "job:1"), batch("q", 7));
    checks.work.began(begin("stage_submitted", "stage:1.0"), batch("q", 7));
    checks.take();
    checks.work.stageEnded(Collections.singletonList(end("stage_completed", "stage:1.0", true)));
    is(checks.take(), "[stage_submitted, stage_completed]");
    checks.work.jobEnded(end("job_end", "job:1", true));
    is(checks.take(), "[job_start, job_end]");
    for (int job = 2; job < 4; job++) {
      checks.work.began(begin("job_start", "job:" + job), batch("q", 7));
      checks.work.jobEnded(end("job_end", "job:" + job, false));
    }
    is(checks.take(), "[job_start, job_end]");
  }

  /** Jobs outside of micro-batches, and all of them where the settings ask for it, are recorded at once. */
  public static void checkOtherJobsAreRecordedAtOnce() {
    for (boolean holdsBack : new boolean[] {true, false}) {
      MicroBatchWorkChecks checks = new MicroBatchWorkChecks(holdsBack);
      checks.work.began(begin("job_start", "job:1"), holdsBack ? new Properties() : batch("q", 1));
      checks.work.began(begin("stage_submitted", "stage:1.0"), holdsBack ? null : batch("q", 1));
      checks.work.stageEnded(Collections.singletonList(end("stage_completed", "stage:1.0", false)));
      checks.work.jobEnded(end("job_end", "job:1", false));
      is(checks.take(), "[job_start, stage_submitted, stage_completed, job_end]");
    }
  }

  /** What still runs at the application's end is recorded before it. */
  public static void checkRunningJobsAreRecordedAtTheEnd() {
    MicroBatchWorkChecks checks = new MicroBatchWorkChecks(true);
    checks.work.began(begin("job_start", "job:1"), batch("q", 1));
    checks.work.end();
    is(checks.take(), "[batch_started, job_start]");
  }
}
