package io.sparkevents.listener;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;

/**
 * Local properties that assign a job or a stage to its query, group or SQL execution; secrets are redacted as in Spark.
 */
public final class JobProperties {
  static final String QUERY = "sql.streaming.queryId";
  static final String BATCH = "streaming.sql.batchId";
  static final String TAGS = "spark.job.tags";
  private static final String[] KEYS = {
    "spark.job.description",
    "spark.jobGroup.id",
    "spark.sql.execution.id",
    "callSite.short",
    QUERY,
    BATCH,
    "spark.sql.streaming.multipleWatermarkPolicy",
    TAGS,
    "spark.openlineage.context",
  };

  private final Redaction redaction;
  /**
   * Last value of each key; {@link #lastWritten} caches its redacted form, because most values repeat from job to job,
   * and applying the pattern takes longer than all other work for a record. Used by the writer thread only.
   */
  private final String[] last = new String[KEYS.length];
  private final String[] lastWritten = new String[KEYS.length];

  public JobProperties(Redaction redaction) {
    this.redaction = redaction;
  }

  /** Returns the beginnings of the raw values in the order of the keys; the writer thread redacts them later. */
  public static String[] select(Properties all) {
    String[] selected = new String[KEYS.length];
    if (all != null) {
      for (int i = 0; i < KEYS.length; i++) {
        selected[i] = Text.beginning(all.getProperty(KEYS[i]));
      }
    }
    return selected;
  }

  /** Returns the redacted values by key. */
  public Map<String, String> redacted(String[] selected) {
    Map<String, String> redacted = new LinkedHashMap<>();
    for (int i = 0; i < KEYS.length; i++) {
      if (selected[i] != null) {
        if (!selected[i].equals(last[i])) {
          last[i] = selected[i];
          lastWritten[i] = redaction.redact(KEYS[i], selected[i]);
        }
        redacted.put(KEYS[i], lastWritten[i]);
      }
    }
    return redacted;
  }
}
