package io.sparkevents.listener;

import java.util.regex.Pattern;

/** Recognises cancelled work; a replay has the same rule ({@code cancellation.py}). */
public final class Cancellation {
  private static final Pattern CANCELLED =
      Pattern.compile("\\[SPARK_JOB_CANCELLED]|Job \\d+ cancelled|cancelled part of cancelled job group");

  private Cancellation() {}

  /** Whether the message of a job's or stage's exception says that the work was cancelled; false for null. */
  static boolean is(String message) {
    return message != null && CANCELLED.matcher(message.split("\n", 2)[0]).find();
  }
}
