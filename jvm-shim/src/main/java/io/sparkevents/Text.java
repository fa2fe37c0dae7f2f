package io.sparkevents;

/** Long texts, cut to a size that can be carried. */
final class Text {
  static final int LIMIT = 64 * 1024;

  private Text() {}

  /** Keeps the beginning and, because the cause of it all often stands last, a quarter for the end. */
  static String cut(String text) {
    if (text == null || text.length() <= LIMIT) {
      return text;
    }
    int tail = LIMIT / 4;
    int head = LIMIT - tail;
    return text.substring(0, head)
        + "\n... [" + (text.length() - LIMIT) + " characters cut] ...\n"
        + text.substring(text.length() - tail);
  }
}
