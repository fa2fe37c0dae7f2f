package io.sparkevents;

import com.fasterxml.jackson.core.JsonGenerator;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import org.apache.spark.SparkThrowable;

/** An exception as a record carries it: the chain of types and messages, and the trace as text. */
final class Failures {
  private static final int DEEPEST = 20;

  private Failures() {}

  /** {@code getErrorClass} is deprecated for a new name, but the only one that 3.5 and 4.x share. */
  @SuppressWarnings("deprecation")
  static void write(JsonGenerator json, Throwable failure) throws IOException {
    json.writeArrayFieldStart("chain");
    Throwable link = failure;
    for (int depth = 0; link != null && depth < DEEPEST; depth++) {
      json.writeStartObject();
      json.writeStringField("type", link.getClass().getName());
      json.writeStringField("message", Text.cut(link.getMessage()));
      if (link instanceof SparkThrowable) {
        json.writeStringField("error_class", ((SparkThrowable) link).getErrorClass());
        json.writeStringField("sql_state", ((SparkThrowable) link).getSqlState());
      }
      json.writeEndObject();
      link = link.getCause() == link ? null : link.getCause();
    }
    json.writeEndArray();
    StringWriter trace = new StringWriter();
    failure.printStackTrace(new PrintWriter(trace, true));
    json.writeStringField("trace", Text.cut(trace.toString()));
  }
}
