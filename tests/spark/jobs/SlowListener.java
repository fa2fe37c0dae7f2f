import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerApplicationEnd;

/** User listener that delays the event of the application's end for the listeners after it. */
public final class SlowListener extends SparkListener {
  @Override
  public void onApplicationEnd(SparkListenerApplicationEnd event) {
    try {
      Thread.sleep(2_000);
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
    }
  }
}
