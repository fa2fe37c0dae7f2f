package io.sparkevents.listener;

import io.sparkevents.queue.Record;
import io.sparkevents.queue.Subject;
import java.util.Arrays;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.SparkListenerApplicationStart;
import scala.Option;
import scala.Tuple2;

/** Creates the records of the application's start and of the JVM's exit. */
public final class ApplicationRecords {
  private static final String SPARK = "org.apache.spark.";

  private final Redaction redaction;
  private final String host;
  /**
   * Command, main class, Python files and setting names. With these, the sidecar distinguishes the user's own code from
   * libraries in a stack trace. The event log contains the same values, except a main class that only a jar's manifest
   * names.
   */
  private final String command = System.getProperty("sun.java.command", "");
  private final String mainClass = command.startsWith(SPARK) ? mainClass() : "";
  private final String[] pyFiles;
  private final Set<String> namespaces = new TreeSet<>();
  private final Links links;
  private final Subject application = new Subject();

  public ApplicationRecords(SparkConf conf, Redaction redaction) {
    this.redaction = redaction;
    host = conf.get("spark.driver.host", "");
    links = new Links(conf);
    String files = conf.get("spark.submit.pyFiles", "");
    pyFiles = Arrays.stream(files.split(",")).filter(file -> !file.isEmpty()).toArray(String[]::new);
    for (Tuple2<String, String> entry : conf.getAll()) {
      String[] parts = entry._1().split("\\.");
      if (parts.length > 2) {
        namespaces.add(parts[1]);
      }
    }
  }

  /**
   * Returns the class whose main method runs on the JVM's first thread; empty if the class is Spark's or main has
   * returned.
   */
  private static String mainClass() {
    String found = "";
    Thread main = ExitEvidence.firstThread();
    for (StackTraceElement frame : main == null ? new StackTraceElement[0] : main.getStackTrace()) {
      if (frame.getMethodName().equals("main") && !frame.getClassName().startsWith(SPARK)) {
        // Continue, because only the outermost frame counts.
        found = frame.getClassName();
      }
    }
    return found;
  }

  public Record applicationStart(SparkListenerApplicationStart event) {
    String attempt = orNull(event.appAttemptId());
    return application(orNull(event.appId()), event.appName(), attempt, event.sparkUser(), event.time());
  }

  /** Returns the start record of an application that was already running. */
  public Record application(SparkContext running) {
    String attempt = orNull(running.applicationAttemptId());
    return application(running.applicationId(), running.appName(), attempt, running.sparkUser(), running.startTime());
  }

  private Record application(String id, String name, String attempt, String user, long time) {
    String shownCommand = Text.cut(command);
    return new Record(
        "application_start",
        Record.Priority.LIFECYCLE,
        Record.Change.keep(application, Record.Rank.APPLICATION),
        json -> {
          Record.write(json, "app_id", id, "app_name", redaction.redact("spark.app.name", name), "attempt_id", attempt);
          Record.write(json, "user", user, "time", time, "host", host);
          Record.write(json, "spark_version", org.apache.spark.package$.MODULE$.SPARK_VERSION());
          Record.write(json, "command", shownCommand, "main_class", mainClass);
          Record.write(json, "py_files", pyFiles, "namespaces", namespaces);
          links.write(json);
        },
        Text.length(id, name, attempt, user, shownCommand, mainClass));
  }

  /** Returns the record of an orderly JVM shutdown; the record proves that the driver was not killed. */
  public static Record jvmShutdown() {
    return new Record("jvm_shutdown", Record.Priority.LIFECYCLE, json -> {});
  }

  /** Returns a number of Spark's configuration. Spark accepts more forms than {@code getInt}, such as references. */
  static int number(SparkConf conf, String key, int otherwise) {
    try {
      return conf.getInt(key, otherwise);
    } catch (IllegalArgumentException unreadable) {
      return otherwise;
    }
  }

  public static <T> T orNull(Option<T> option) {
    return option.isDefined() ? option.get() : null;
  }
}
