package io.sparkevents.listener;

import java.io.Writer;

/** Long texts, cut to a size that can be carried. */
public final class Text {
  public static final int LIMIT = 64 * 1024;
  private static final int TAIL = LIMIT / 4;
  private static final int HEAD = LIMIT - TAIL;

  private Text() {}

  /** Keeps the beginning and, because the cause of it all often stands last, a quarter for the end. */
  public static String cut(String text) {
    if (text == null || text.length() <= LIMIT) {
      return text;
    }
    return joined(text.substring(0, HEAD), text.length(), text.substring(text.length() - TAIL));
  }

  private static String joined(String head, long length, String tail) {
    return head + "\n... [" + (length - LIMIT) + " characters cut] ...\n" + tail;
  }

  /** Takes a text of any length, and holds no more than what is kept of it. */
  public static final class Cutting extends Writer {
    private final StringBuilder head = new StringBuilder();
    private final StringBuilder tail = new StringBuilder();
    private long length;

    @Override
    public void write(char[] characters, int from, int count) {
      write(new String(characters, from, count), 0, count);
    }

    @Override
    public void write(String text, int from, int count) {
      length += count;
      int room = Math.min(count, HEAD - head.length());
      head.append(text, from, from + room);
      tail.append(text, from + Math.max(room, count - TAIL), from + count);
      if (tail.length() > 2 * TAIL) {
        tail.delete(0, tail.length() - TAIL);
      }
    }

    @Override
    public void flush() {}

    @Override
    public void close() {}

    /** The text that was written, cut. */
    @Override
    public String toString() {
      if (length <= LIMIT) {
        return head.toString() + tail;
      }
      return joined(head.toString(), length, tail.substring(tail.length() - TAIL));
    }
  }
}
