package io.sparkevents;

import io.sparkevents.listener.JobProperties;
import io.sparkevents.listener.JobRecords;
import io.sparkevents.listener.Redaction;
import io.sparkevents.queue.Record;
import java.util.Properties;
import org.apache.spark.SparkConf;
import org.apache.spark.scheduler.JobSucceeded$;
import org.apache.spark.scheduler.SparkListenerApplicationStart;
import org.apache.spark.scheduler.SparkListenerJobEnd;
import org.apache.spark.scheduler.SparkListenerJobStart;
import scala.Option;
import scala.collection.immutable.Nil$;

/** Listener events of jobs with increasing ids, where each start and each end causes one event. */
final class Jobs {
  private static final Properties PROPERTIES = properties();

  private Jobs() {}

  static Properties properties() {
    Properties properties = new Properties();
    properties.setProperty("spark.job.description", "select count(*) from somewhere");
    properties.setProperty("spark.sql.execution.id", "17");
    properties.setProperty("callSite.short", "count at App.scala:12");
    for (int i = 0; i < 20; i++) {
      properties.setProperty("spark.some.other.property." + i, "value " + i);
    }
    return properties;
  }

  /** Return the settings of a driver with a single file reporter. */
  static SparkConf conf(String python, String events, String dispatcher) {
    SparkConf conf = new SparkConf(false);
    conf.set("spark.driver.host", "localhost");
    conf.set("spark.events.python", python);
    conf.set("spark.events.required", "true");
    conf.set("spark.events.dispatcher.type", dispatcher);
    conf.set("spark.events.reporter.audit.type", "file");
    conf.set("spark.events.reporter.audit.path", events);
    return conf;
  }

  static SparkListenerApplicationStart applicationStart() {
    Option<String> id = Option.apply("local-1767225600000");
    return new SparkListenerApplicationStart(
        "benchmark", id, System.currentTimeMillis(), "somebody", Option.empty(), Option.empty(), Option.empty());
  }

  static SparkListenerJobStart start(int job) {
    return new SparkListenerJobStart(job, System.currentTimeMillis(), none(), PROPERTIES);
  }

  static SparkListenerJobEnd end(int job) {
    return new SparkListenerJobEnd(job, System.currentTimeMillis(), JobSucceeded$.MODULE$);
  }

  /** Make the listener call with this number. Calls with even numbers start a job; calls with odd numbers end it. */
  static void tell(EventsListener listener, int call) {
    if (call % 2 == 0) {
      listener.onJobStart(start(call / 2));
    } else {
      listener.onJobEnd(end(call / 2));
    }
  }

  /** Return the encoded records of the first {@code count} calls. */
  static byte[][] lines(SparkConf conf, int count) throws Exception {
    Redaction redaction = new Redaction(Redaction.SPARK_DEFAULT);
    JobRecords records = new JobRecords(record -> {}, false, new JobProperties(redaction));
    byte[][] lines = new byte[count][];
    for (int i = 0; i < count; i++) {
      Record record = i % 2 == 0 ? records.startRecord(start(i / 2)) : records.endRecord(end(i / 2), null, null);
      record.assign(i + 1);
      lines[i] = record.line();
    }
    return lines;
  }

  @SuppressWarnings("unchecked")
  private static <T> scala.collection.immutable.Seq<T> none() {
    return (scala.collection.immutable.Seq<T>) (Object) Nil$.MODULE$;
  }
}
