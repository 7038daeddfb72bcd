// What Airflow's UI does in the surrounding document when somebody chooses a theme; only other documents get the event.
(theme) => {
  localStorage.setItem("theme", theme);
  window.dispatchEvent(new StorageEvent("storage", { key: "theme", newValue: theme }));
}
