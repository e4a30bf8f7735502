package protocol

import (
	"errors"
	"fmt"
	"strings"

	"github.com/valkey-io/valkey-go"
)

// Says: err is an error reply of the server that begins with one of the words, or carries it behind a script's own:
// "ERR … NOPERM …".
func Says(err error, words ...string) bool {
	var reply *valkey.ValkeyError
	if !errors.As(err, &reply) {
		return false
	}
	text := strings.TrimPrefix(reply.Error(), "ERR ")
	for _, word := range words {
		if strings.HasPrefix(text, word) || strings.Contains(text, " "+word+" ") {
			return true
		}
	}
	return false
}

// Denied: the user lacks a right. What a script may not do is told in words, by valkey and by redis 7.0.
func Denied(err error) bool {
	return Says(err, "NOPERM", "ACL failure in script", "The user executing the script can't")
}

// WrongType: the server has something else where one of the lock's keys should be.
func WrongType(err error) bool { return Says(err, "WRONGTYPE") }

// remedy is what to do about an error of the server whose own text says only what is wrong; "" for others.
func remedy(k *Keys, err error) string {
	if !WrongType(err) {
		return ""
	}
	return fmt.Sprintf("; %q, or a helper of it such as %q, is another program's: use another key (WithPrefix), or delete that one", k.Lock, k.Queue())
}
