package io.sparkevents;

import java.lang.reflect.Method;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;

/** The SparkContext that is being made: it makes the listeners of spark.extraListeners, and does not introduce itself. */
final class StartingContext {
  private static final Logger LOG = LoggerFactory.getLogger(EventsListener.class);

  private StartingContext() {}

  /**
   * @param conf the very object that it hands to its listeners
   * @return null where no context with that configuration is being made, or Spark does not tell
   */
  static SparkContext of(SparkConf conf) {
    try {
      Class<?> companion = Class.forName("org.apache.spark.SparkContext$");
      Method starting = companion.getDeclaredMethod("contextBeingConstructed");
      starting.setAccessible(true);
      Option<?> found = (Option<?>) starting.invoke(companion.getField("MODULE$").get(null));
      SparkContext context = found.isDefined() ? (SparkContext) found.get() : null;
      return context != null && context.conf() == conf ? context : null;
    } catch (ReflectiveOperationException | RuntimeException | LinkageError notThisSpark) {
      // Nothing depends on it but a little speed.
      LOG.debug("spark-events: Spark does not tell which context is being made", notThisSpark);
      return null;
    }
  }
}
