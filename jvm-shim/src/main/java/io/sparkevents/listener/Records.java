package io.sparkevents.listener;

import io.sparkevents.queue.Priority;
import io.sparkevents.queue.Record;
import io.sparkevents.queue.RestoreState;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.JobResult;
import org.apache.spark.scheduler.SparkListenerApplicationStart;
import org.apache.spark.scheduler.SparkListenerJobEnd;
import org.apache.spark.scheduler.SparkListenerJobStart;
import scala.Option;
import scala.Product;

/** Makes the records of applications and jobs from Spark's listener events. */
public final class Records {
  private final Redaction redaction;
  private final JobProperties properties;
  private final String host;
  private final Submission submission;

  public Records(SparkConf conf, Redaction redaction, JobProperties properties) {
    this.redaction = redaction;
    this.properties = properties;
    host = conf.get("spark.driver.host", "");
    submission = new Submission(conf);
  }

  public Record applicationStart(SparkListenerApplicationStart event) {
    return application(
        orNull(event.appId()), event.appName(), orNull(event.appAttemptId()), event.sparkUser(), event.time());
  }

  /** Returns the start record of an application that is already running. */
  public Record application(SparkContext running) {
    return application(
        running.applicationId(),
        running.appName(),
        orNull(running.applicationAttemptId()),
        running.sparkUser(),
        running.startTime());
  }

  private Record application(String id, String name, String attempt, String user, long time) {
    String version = org.apache.spark.package$.MODULE$.SPARK_VERSION();
    return new Record(
        "application_start",
        Priority.LIFECYCLE,
        RestoreState.Change.begin("application", RestoreState.Rank.APPLICATION),
        json -> {
          json.writeStringField("app_id", id);
          json.writeStringField("app_name", redaction.redact("spark.app.name", name));
          json.writeStringField("attempt_id", attempt);
          json.writeStringField("user", user);
          json.writeNumberField("time", time);
          json.writeStringField("spark_version", version);
          json.writeStringField("host", host);
          submission.write(json);
        });
  }

  public Record jobStart(SparkListenerJobStart event) {
    String[] selected = JobProperties.select(event.properties());
    // Capture values, not the event: it refers to the StageInfo of all stages.
    int job = event.jobId();
    long time = event.time();
    return new Record(
        "job_start",
        Priority.ROUTINE,
        RestoreState.Change.begin("job:" + job, RestoreState.Rank.WORK),
        json -> {
          json.writeNumberField("job_id", job);
          json.writeNumberField("time", time);
          properties.write(json, selected);
        });
  }

  public Record jobEnd(SparkListenerJobEnd event) {
    Throwable failure = failure(event.jobResult());
    return new Record(
        "job_end",
        failure == null ? Priority.ROUTINE : Priority.LIFECYCLE,
        RestoreState.Change.forget("job:" + event.jobId()),
        json -> {
          json.writeNumberField("job_id", event.jobId());
          json.writeNumberField("time", event.time());
          if (failure != null) {
            json.writeObjectFieldStart("failure");
            Failures.write(json, failure);
            json.writeEndObject();
          }
        });
  }

  /**
   * Returns the exception of a failed job. JobFailed is not public, but it is a case class with the exception as its
   * only element.
   */
  private static Throwable failure(JobResult result) {
    if (result instanceof Product && ((Product) result).productArity() == 1) {
      Object exception = ((Product) result).productElement(0);
      return exception instanceof Throwable ? (Throwable) exception : null;
    }
    return null;
  }

  /** Returns the record of an orderly JVM shutdown, which proves that the driver was not killed. */
  public static Record jvmShutdown() {
    return new Record("jvm_shutdown", Priority.LIFECYCLE, null, json -> {});
  }

  private static <T> T orNull(Option<T> option) {
    return option.isDefined() ? option.get() : null;
  }
}
