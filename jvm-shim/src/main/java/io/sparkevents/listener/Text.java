package io.sparkevents.listener;

/** Cuts long strings to the maximum size in a record. */
public final class Text {
  public static final int LIMIT = 64 * 1024;
  private static final int TAIL = LIMIT / 4;
  private static final int HEAD = LIMIT - TAIL;

  private Text() {}

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
