package io.sparkevents.listener;

import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.execution.SparkPlanInfo;
import org.apache.spark.sql.execution.metric.SQLMetricInfo;
import scala.collection.Iterator;

/**
 * Reads the children and the metrics of a node of a physical plan.
 *
 * <p>Both are a {@code Seq}, whose type differs between Scala 2.12 and 2.13, so this class calls the public methods by
 * name.
 */
final class PlanTree {
  private static final Method CHILDREN = method("children");
  private static final Method METRICS = method("metrics");

  private PlanTree() {}

  private static Method method(String name) {
    try {
      return SparkPlanInfo.class.getMethod(name);
    } catch (NoSuchMethodException renamed) {
      throw new LinkageError("SparkPlanInfo lacks " + name, renamed);
    }
  }

  static List<SparkPlanInfo> children(SparkPlanInfo node) {
    List<SparkPlanInfo> children = new ArrayList<>();
    for (Object child : elements(CHILDREN, node)) {
      children.add((SparkPlanInfo) child);
    }
    return children;
  }

  /** Returns the names of a node's metrics by the ids of their accumulators. */
  static Map<Long, String> metrics(SparkPlanInfo node) {
    Map<Long, String> names = new LinkedHashMap<>();
    for (Object metric : elements(METRICS, node)) {
      names.put(((SQLMetricInfo) metric).accumulatorId(), ((SQLMetricInfo) metric).name());
    }
    return names;
  }

  private static List<Object> elements(Method method, SparkPlanInfo node) {
    List<Object> elements = new ArrayList<>();
    try {
      Iterator<?> iterator = ((scala.collection.Iterable<?>) method.invoke(node)).iterator();
      while (iterator.hasNext()) {
        elements.add(iterator.next());
      }
    } catch (ReflectiveOperationException impossible) {
      throw new LinkageError("SparkPlanInfo cannot be read", impossible);
    }
    return elements;
  }
}
