//go:build !race

package queue

// raceEnabled says that memory is not what it is otherwise.
const raceEnabled = false
