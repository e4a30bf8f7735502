//go:build !race

package valkeysync

const raceDetector = false
