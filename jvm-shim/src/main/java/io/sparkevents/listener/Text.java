package io.sparkevents.listener;

/** Cuts long strings to the maximum size in a record, and counts the size of a record's strings. */
public final class Text {
  public static final int LIMIT = 64 * 1024;
  private static final int TAIL = LIMIT / 4;
  private static final int HEAD = LIMIT - TAIL;

  /** Limit of a description, a group or another local property, which a record contains from its beginning. */
  public static final int SHORT_LIMIT = 4_096;

  private Text() {}

  /**
   * Keeps only the beginning of a local property or a description. Called on the listener thread, so that a record does
   * not hold a long string.
   */
  public static String beginning(String text) {
    if (text == null || text.length() <= SHORT_LIMIT) {
      return text;
    }
    return text.substring(0, SHORT_LIMIT) + "\n... [" + (text.length() - SHORT_LIMIT) + " characters cut]";
  }

  /** Returns the number of characters of several strings together; a string may be null. */
  public static int length(String... texts) {
    int length = 0;
    for (String text : texts) {
      length += text == null ? 0 : text.length();
    }
    return length;
  }

  /**
   * Keeps the beginning and the end of a long string. A quarter of the size is for the end, which often contains the
   * cause.
   */
  public static String cut(String text) {
    if (text == null || text.length() <= LIMIT) {
      return text;
    }
    String tail = text.substring(text.length() - TAIL);
    return text.substring(0, HEAD) + "\n... [" + (text.length() - LIMIT) + " characters cut] ...\n" + tail;
  }
}
