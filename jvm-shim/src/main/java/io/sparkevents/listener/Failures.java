package io.sparkevents.listener;

import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.function.Supplier;
import org.apache.spark.SparkThrowable;

/**
 * Exceptions in records: the chain of types and messages, and the stack trace as a string.
 *
 * <p>User code may override the methods of an exception. If such a method throws, the record lacks only its value.
 */
public final class Failures {
  private static final int DEEPEST = 20;

  private Failures() {}

  /** Returns the fields that describe an exception in a record; null for null. */
  public static Map<String, Object> fields(Throwable failure) {
    if (failure == null) {
      return null;
    }
    List<Map<String, String>> chain = new ArrayList<>();
    Throwable link = failure;
    while (link != null && chain.size() < DEEPEST) {
      chain.add(link(link));
      Throwable cause = asked(link::getCause, wrong -> null);
      link = cause == link ? null : cause;
    }
    Map<String, Object> fields = new LinkedHashMap<>();
    fields.put("chain", chain);
    fields.put("trace", trace(failure));
    return fields;
  }

  /**
   * Estimates the size of the fields in bytes: each message occurs twice, in the chain and in the stack trace, and both
   * are cut. Returns 0 for null.
   */
  public static int size(Throwable failure) {
    int size = 0;
    int links = 0;
    Throwable link = failure;
    while (link != null && links++ < DEEPEST) {
      size += Math.min(Text.LIMIT, Text.length(asked(link::getMessage, Failures::instead)));
      Throwable cause = asked(link::getCause, wrong -> null);
      link = cause == link ? null : cause;
    }
    return size + Math.min(Text.LIMIT, size);
  }

  /** {@code getErrorClass} is deprecated, but Spark 3.5 lacks the new name. */
  @SuppressWarnings("deprecation")
  private static Map<String, String> link(Throwable link) {
    Map<String, String> fields = new LinkedHashMap<>();
    fields.put("type", link.getClass().getName());
    fields.put("message", Text.cut(asked(link::getMessage, Failures::instead)));
    if (link instanceof SparkThrowable) {
      SparkThrowable known = (SparkThrowable) link;
      fields.put("error_class", asked(() -> known.getErrorClass(), wrong -> null));
      fields.put("sql_state", asked(() -> known.getSqlState(), wrong -> null));
    }
    return fields;
  }

  private static String trace(Throwable failure) {
    StringWriter trace = new StringWriter();
    try {
      failure.printStackTrace(new PrintWriter(trace));
    } catch (Throwable wrong) {
      // Keep the part of the trace that has been written.
      trace.write(failure.getClass().getName() + " " + instead(wrong) + "\n");
    }
    return Text.cut(trace.toString());
  }

  /** Returns the exception's message; empty if it has none. */
  public static String message(Throwable failure) {
    String message = asked(failure::getMessage, Failures::instead);
    return message == null ? "" : message;
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
