package io.sparkevents.listener;

import com.fasterxml.jackson.core.JsonGenerator;
import java.io.IOException;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.SparkConf;
import scala.Tuple2;

/**
 * Command, main class and Python files that were submitted.
 *
 * <p>With them the sidecar distinguishes the user's own code from libraries in a stack trace. The event log has the
 * same values, except for a main class that only the manifest of a jar names.
 */
final class Submission {
  private static final String SPARK = "org.apache.spark.";

  private final String command = System.getProperty("sun.java.command", "");
  private final String mainClass = command.startsWith(SPARK) ? mainClass() : "";
  private final String[] pyFiles;
  private final Set<String> namespaces = new TreeSet<>();

  Submission(SparkConf conf) {
    pyFiles = conf.get("spark.submit.pyFiles", "").split(",");
    for (Tuple2<String, String> entry : conf.getAll()) {
      String[] parts = entry._1().split("\\.");
      if (parts.length > 2) {
        namespaces.add(parts[1]);
      }
    }
  }

  /**
   * Returns the class that spark-submit runs on the JVM's first thread; empty if it is one of Spark's own or has
   * returned.
   */
  private static String mainClass() {
    for (Thread thread : Thread.getAllStackTraces().keySet()) {
      if (thread.getId() == 1) {
        StackTraceElement[] stack = thread.getStackTrace();
        for (int i = stack.length - 1; i >= 0; i--) {
          String name = stack[i].getClassName();
          if (stack[i].getMethodName().equals("main") && !name.startsWith(SPARK)) {
            return name;
          }
        }
      }
    }
    return "";
  }

  void write(JsonGenerator json) throws IOException {
    json.writeStringField("command", Text.cut(command));
    json.writeStringField("main_class", mainClass);
    json.writeArrayFieldStart("py_files");
    for (String file : pyFiles) {
      if (!file.isEmpty()) {
        json.writeString(file);
      }
    }
    json.writeEndArray();
    json.writeArrayFieldStart("namespaces");
    for (String namespace : namespaces) {
      json.writeString(namespace);
    }
    json.writeEndArray();
  }
}
