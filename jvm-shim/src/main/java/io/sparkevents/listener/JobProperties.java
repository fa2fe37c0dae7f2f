package io.sparkevents.listener;

import com.fasterxml.jackson.core.JsonGenerator;
import java.io.IOException;
import java.util.Properties;

/** Those local properties of a job or a stage that say what it belongs to, redacted as Spark does. */
public final class JobProperties {
  private static final String[] KEYS = {
    "spark.job.description",
    "spark.jobGroup.id",
    "spark.sql.execution.id",
    "callSite.short",
    "sql.streaming.queryId",
    "streaming.sql.batchId",
    "spark.sql.streaming.multipleWatermarkPolicy",
  };

  private final Redaction redaction;
  /**
   * Of each key the value that was written last, and as what: from job to job most are the same, and the
   * pattern takes longer than all the rest of a record. Used by the writer's thread alone.
   */
  private final String[] last = new String[KEYS.length];
  private final String[] lastWritten = new String[KEYS.length];

  public JobProperties(Redaction redaction) {
    this.redaction = redaction;
  }

  /** Their values as they are, in the order of the keys: to redact them is left to the writer's thread. */
  public static String[] select(Properties all) {
    String[] selected = new String[KEYS.length];
    if (all != null) {
      for (int i = 0; i < KEYS.length; i++) {
        selected[i] = all.getProperty(KEYS[i]);
      }
    }
    return selected;
  }

  public void write(JsonGenerator json, String[] selected) throws IOException {
    json.writeObjectFieldStart("properties");
    for (int i = 0; i < KEYS.length; i++) {
      if (selected[i] != null) {
        json.writeStringField(KEYS[i], safe(i, selected[i]));
      }
    }
    json.writeEndObject();
  }

  private String safe(int key, String value) {
    if (!value.equals(last[key])) {
      last[key] = value;
      lastWritten[key] = Text.cut(redaction.redact(KEYS[key], value));
    }
    return lastWritten[key];
  }
}
