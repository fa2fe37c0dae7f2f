package io.sparkevents.listener;

import java.io.Writer;

/** Cuts long texts to the size that a record may hold. */
public final class Text {
  public static final int LIMIT = 64 * 1024;
  private static final int TAIL = LIMIT / 4;
  private static final int HEAD = LIMIT - TAIL;

  private Text() {}

  /** Keeps the beginning and the end of a long text; the end gets a quarter, because it often names the cause. */
  public static String cut(String text) {
    if (text == null || text.length() <= LIMIT) {
      return text;
    }
    return joined(text.substring(0, HEAD), text.length(), text.substring(text.length() - TAIL));
  }

  private static String joined(String head, long length, String tail) {
    return head + "\n... [" + (length - LIMIT) + " characters cut] ...\n" + tail;
  }

  /** Writer that accepts text of any length and keeps only the part that {@link #cut} would keep. */
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

    /** Returns the written text, cut. */
    @Override
    public String toString() {
      if (length <= LIMIT) {
        return head.toString() + tail;
      }
      return joined(head.toString(), length, tail.substring(tail.length() - TAIL));
    }
  }
}
