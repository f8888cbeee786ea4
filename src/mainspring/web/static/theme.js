// Runs before the first paint, so that a chosen theme does not flash by as the other one.
try {
  const theme = localStorage.getItem("mainspring.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch { /* private window: the system decides */ }
