package io.sparkevents.listener;

import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;
import org.apache.spark.SparkConf;

/** Redaction of properties with {@code spark.redaction.regex}, which is matched against key and value as in Spark. */
public final class Redaction {
  public static final String SPARK_DEFAULT = "(?i)secret|password|token|access[.]?key";
  private static final String REPLACEMENT = "*********(redacted)";

  private final Pattern sensitive;

  public Redaction(String regex) {
    Pattern pattern;
    try {
      pattern = Pattern.compile(regex);
    } catch (PatternSyntaxException wrong) {
      // Spark itself fails when it uses an invalid pattern. Until this happens, redact every value.
      pattern = Pattern.compile("");
    }
    sensitive = pattern;
  }

  /** Returns the redaction that Spark's configuration demands. */
  public static Redaction of(SparkConf conf) {
    return new Redaction(conf.get("spark.redaction.regex", SPARK_DEFAULT));
  }

  String redact(String key, String value) {
    if (value == null) {
      return null;
    }
    return sensitive.matcher(key).find() || sensitive.matcher(value).find() ? REPLACEMENT : value;
  }
}
