//go:build !race

package smtpclient

const raceDetector = false
