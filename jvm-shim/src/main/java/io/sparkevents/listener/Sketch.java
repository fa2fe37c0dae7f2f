package io.sparkevents.listener;

import java.util.Arrays;

/**
 * Histogram with 128 buckets for each power of two; a quantile is at most 0.8 % below the exact value.
 *
 * <p>A replay uses the same integer arithmetic ({@code sketch.py}). The histogram needs 10 KB for durations of one day,
 * 18 KB for inputs of one TB, and never more than 30 KB, because it has fewer than 7,500 buckets.
 */
final class Sketch {
  private int[] counts = new int[32];
  private long total;
  private long min = Long.MAX_VALUE;
  private long max;

  void add(long value) {
    int bucket = bucket(value);
    if (bucket >= counts.length) {
      counts = Arrays.copyOf(counts, bucket + 32);
    }
    counts[bucket]++;
    total++;
    min = Math.min(min, Math.max(0, value));
    max = Math.max(max, value);
  }

  long max() {
    return max;
  }

  /** Returns a quantile: the lower bound of its bucket, but at least the minimum; 0 without values. */
  long quantile(int percent) {
    if (total == 0) {
      return 0;
    }
    long rank = (percent * total + 99) / 100;
    for (int bucket = 0; bucket < counts.length; bucket++) {
      rank -= counts[bucket];
      if (rank <= 0) {
        return Math.max(min, lower(bucket));
      }
    }
    return max;
  }

  /**
   * Returns the bucket of a value. Below 256, the bucket is the value; above, it consists of the value's highest eight
   * bits and their position.
   */
  private static int bucket(long value) {
    if (value < 128) {
      return (int) Math.max(0, value);
    }
    int shift = 56 - Long.numberOfLeadingZeros(value);
    return shift * 128 + (int) (value >> shift);
  }

  private static long lower(int bucket) {
    if (bucket < 256) {
      return bucket;
    }
    return (128L + bucket % 128) << (bucket / 128 - 1);
  }
}
