package io.sparkevents.listener;

import com.fasterxml.jackson.core.JsonGenerator;
import java.io.IOException;
import java.io.PrintWriter;
import java.util.function.Function;
import java.util.function.Supplier;
import org.apache.spark.SparkThrowable;

/**
 * Writes an exception into a record: the chain of types and messages, and the stack trace as text.
 *
 * <p>The exception's methods may be the user's own. If one throws, only its value is missing from the record.
 */
public final class Failures {
  private static final int DEEPEST = 20;

  private Failures() {}

  public static void write(JsonGenerator json, Throwable failure) throws IOException {
    json.writeArrayFieldStart("chain");
    Throwable link = failure;
    for (int depth = 0; link != null && depth < DEEPEST; depth++) {
      writeLink(json, link);
      Throwable cause = asked(link::getCause, wrong -> null);
      link = cause == link ? null : cause;
    }
    json.writeEndArray();
    json.writeStringField("trace", trace(failure));
  }

  /** {@code getErrorClass} is deprecated, but its new name does not exist in Spark 3.5. */
  @SuppressWarnings("deprecation")
  private static void writeLink(JsonGenerator json, Throwable link) throws IOException {
    json.writeStartObject();
    json.writeStringField("type", link.getClass().getName());
    json.writeStringField("message", Text.cut(asked(link::getMessage, Failures::instead)));
    if (link instanceof SparkThrowable) {
      SparkThrowable known = (SparkThrowable) link;
      json.writeStringField("error_class", asked(() -> known.getErrorClass(), wrong -> null));
      json.writeStringField("sql_state", asked(() -> known.getSqlState(), wrong -> null));
    }
    json.writeEndObject();
  }

  private static String trace(Throwable failure) {
    Text.Cutting trace = new Text.Cutting();
    try {
      failure.printStackTrace(new PrintWriter(trace));
    } catch (Throwable wrong) {
      // The text written so far is kept.
      new PrintWriter(trace).println(failure.getClass().getName() + " " + instead(wrong));
    }
    return trace.toString();
  }

  /** Returns the exception as one line for the log. */
  public static String describe(Throwable failure) {
    return asked(failure::toString, wrong -> failure.getClass().getName() + " " + instead(wrong));
  }

  private static String instead(Throwable wrong) {
    return "(no text: its method threw " + wrong.getClass().getName() + ")";
  }

  private static <T> T asked(Supplier<T> question, Function<Throwable, T> otherwise) {
    try {
      return question.get();
    } catch (Throwable wrong) {
      return otherwise.apply(wrong);
    }
  }
}
