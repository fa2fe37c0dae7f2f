package io.sparkevents.listener;

import io.sparkevents.queue.BoundedMap;
import io.sparkevents.queue.Record;
import io.sparkevents.queue.Subject;
import java.util.Arrays;
import java.util.Map;
import java.util.Properties;
import java.util.function.Consumer;
import org.apache.spark.scheduler.JobResult;
import org.apache.spark.scheduler.SparkListenerJobEnd;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.scheduler.StageInfo;
import scala.Product;

/**
 * Creates the records of jobs, and holds back the records of jobs and stages of micro-batches, because such work causes
 * events only if it fails.
 *
 * <p>A stream with short triggers would fill the queue with the records that this class holds back. Instead, one record
 * per batch reports the current batch of a query. If a job or stage fails, this class sends the start record
 * immediately before the end record. Used by the listener thread only.
 */
public final class JobRecords {
  /** Maximum number of jobs and stages, and of queries; exceeded only if Spark dropped many end events. */
  private static final int LIMIT = 2_000;
  /** Maximum number of stage ids in the start record of a job. */
  private static final int MOST_STAGES = 1_000;
  /** Size of a stage id in the start record. */
  private static final int STAGE_BYTES = 6;

  private static final class Batch {
    final Subject subject = new Subject();
    String id;
    final Subject ofTags = new Subject();
    String tags;
  }

  private final Consumer<Record> sink;
  private final boolean holdsBack;
  private final JobProperties properties;
  private final Map<Integer, Subject> running = new BoundedMap<>(LIMIT);
  /** Start records of the running jobs and stages that are held back. */
  private final Map<Subject, Record> held = new BoundedMap<>(LIMIT);
  /** Last recorded batch of each query. */
  private final Map<String, Batch> batches = new BoundedMap<>(LIMIT);

  public JobRecords(Consumer<Record> sink, boolean holdsBack, JobProperties properties) {
    this.sink = sink;
    this.holdsBack = holdsBack;
    this.properties = properties;
  }

  public Record startRecord(SparkListenerJobStart event) {
    String[] selected = JobProperties.select(event.properties());
    // Capture values instead of the event, because the event refers to the StageInfo of all stages.
    int job = event.jobId();
    long time = event.time();
    int[] stages = stages(event);
    Subject subject = new Subject();
    running.put(job, subject);
    return new Record(
        "job_start",
        Record.Priority.ROUTINE,
        Record.Change.keep(subject, Record.Rank.WORK),
        json -> {
          Record.write(json, "job_id", job, "time", time, "properties", properties.redacted(selected));
          Record.write(json, "stages", stages);
        },
        Text.length(selected) + STAGE_BYTES * stages.length);
  }

  /**
   * Returns the ids of the job's stages. The type of the collection of stages differs between Scala 2.12 and 2.13, so
   * this method reads it as an element of the case class.
   */
  private static int[] stages(SparkListenerJobStart event) {
    scala.collection.Iterator<?> infos = ((scala.collection.Iterable<?>) event.productElement(2)).iterator();
    int[] ids = new int[4];
    int count = 0;
    while (infos.hasNext() && count < MOST_STAGES) {
      if (count == ids.length) {
        ids = Arrays.copyOf(ids, 2 * count);
      }
      ids[count++] = ((StageInfo) infos.next()).stageId();
    }
    return Arrays.copyOf(ids, count);
  }

  /** @param failure the job's exception; null if the job succeeded */
  public Record endRecord(SparkListenerJobEnd event, Throwable failure, Map<String, Object> peaks) {
    Subject subject = running.remove(event.jobId());
    return new Record(
        "job_end",
        failure == null ? Record.Priority.ROUTINE : Record.Priority.LIFECYCLE,
        subject == null ? null : Record.Change.forget(subject),
        json -> {
          Record.write(json, "job_id", event.jobId(), "time", event.time());
          if (failure == null) {
            json.writeNullField("failure");
          } else {
            Record.write(json, "failure", Failures.fields(failure), "peaks", peaks);
            Links.writeUi(json);
          }
        },
        Failures.size(failure));
  }

  /**
   * Returns the exception of a failed job; null if the job succeeded. JobFailed is not public, but it is a case class
   * whose only element is the exception.
   */
  public static Throwable failure(SparkListenerJobEnd event) {
    JobResult result = event.jobResult();
    boolean mayHaveOne = result instanceof Product && ((Product) result).productArity() == 1;
    Object exception = mayHaveOne ? ((Product) result).productElement(0) : null;
    return exception instanceof Throwable ? (Throwable) exception : null;
  }

  /** Whether the records of a job or stage with these local properties are held back. */
  public boolean holdsBack(Properties local) {
    return holdsBack && local != null && local.getProperty(JobProperties.QUERY) != null;
  }

  /** Handles the start of a job or of a stage attempt. */
  public void began(Record record, Properties local) {
    if (!holdsBack(local)) {
      sink.accept(record);
      return;
    }
    held.put(record.subject, record);
    String query = local.getProperty(JobProperties.QUERY);
    String id = local.getProperty(JobProperties.BATCH);
    Batch batch = batches.computeIfAbsent(query, first -> new Batch());
    if (id != null && !id.equals(batch.id)) {
      batch.id = id;
      String[] selected = JobProperties.select(local);
      sink.accept(
          new Record(
              "batch_started",
              Record.Priority.ROUTINE,
              Record.Change.keep(batch.subject, Record.Rank.WORK),
              json -> Record.write(json, "properties", properties.redacted(selected)),
              Text.length(selected)));
    }
  }

  /**
   * Handles the start of a micro-batch's SQL execution. Its tags name the Spark Connect client that started the query, and
   * the query's own session, which shows what other jobs are the query's: those that run in a client's {@code
   * foreachBatch}.
   */
  void batchStarted(String query, String id, String tags) {
    Batch batch = batches.computeIfAbsent(query, first -> new Batch());
    if (!tags.equals(batch.tags)) {
      batch.tags = tags;
      sink.accept(
          new Record(
              "batch_started",
              Record.Priority.ROUTINE,
              Record.Change.keep(batch.ofTags, Record.Rank.WORK),
              json -> {
                json.writeObjectFieldStart("properties");
                Record.write(json, JobProperties.QUERY, query, JobProperties.BATCH, id, JobProperties.TAGS, tags);
                json.writeEndObject();
              }));
    }
  }

  /** Handles the completion of a stage attempt. */
  public void stageEnded(Record end, boolean failed) {
    ended(end, failed);
  }

  /** Handles the completion of a job. */
  public void jobEnded(Record end, boolean failed) {
    ended(end, failed);
  }

  /** Sends the records of a job or stage, unless they were held back and the job or stage did not fail. */
  private void ended(Record end, boolean failed) {
    Record beginning = held.isEmpty() ? null : held.remove(end.subject);
    if (beginning == null) {
      sink.accept(end);
    } else if (failed) {
      sink.accept(beginning);
      sink.accept(end);
    }
  }

  /** Sends the start records of running jobs and stages when the application ends. */
  public void flush() {
    held.values().forEach(sink);
    held.clear();
  }
}
