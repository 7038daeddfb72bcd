"""Google's rules: names, error texts, pages, quota, what is offered where."""
