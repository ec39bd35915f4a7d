package api

// Routes returns the method and path of each route, for tests of all of them.
func Routes() (all [][2]string) {
	for _, r := range operations {
		all = append(all, [2]string{r.method, r.path})
	}
	return all
}
