package io.sparkevents.listener;

import io.sparkevents.queue.Record;
import java.util.regex.Pattern;
import org.apache.spark.scheduler.SparkListenerEvent;
import scala.Product;

/** Recognises cancelled work; a replay has the same rule ({@code cancellation.py}). */
public final class Cancellation {
  private static final Pattern CANCELLED =
      Pattern.compile("\\[SPARK_JOB_CANCELLED]|Job \\d+ cancelled|cancelled part of cancelled job group");
  private static final String TIMEOUT =
      "org.apache.spark.sql.hive.thriftserver.ui.SparkListenerThriftServerOperationTimeout";

  private Cancellation() {}

  /** Whether the message of a job's or stage's exception says that the work was cancelled; false for null. */
  static boolean is(String message) {
    return message != null && CANCELLED.matcher(message.split("\n", 2)[0]).find();
  }

  /**
   * Returns the record of a statement that the Thrift server cancelled after its query timeout; null for other events.
   * The event is not public, but it is a case class, whose elements are the statement's id and the time.
   */
  static Record ofTimeout(SparkListenerEvent event) {
    if (!event.getClass().getName().equals(TIMEOUT) || !(event instanceof Product)) {
      return null;
    }
    Object statement = ((Product) event).productElement(0);
    Object time = ((Product) event).productElement(1);
    return new Record(
        "statement_timed_out",
        Record.Priority.LIFECYCLE,
        null,
        json -> Record.write(json, "statement_id", String.valueOf(statement), "time", ((Number) time).longValue()));
  }
}
