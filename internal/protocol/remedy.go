package protocol

import (
	"errors"
	"fmt"
	"strings"

	"github.com/valkey-io/valkey-go"
)

// WrongType: the server has something else where one of the lock's keys should be.
func WrongType(err error) bool {
	var reply *valkey.ValkeyError
	return errors.As(err, &reply) && strings.Contains(reply.Error(), "WRONGTYPE")
}

// remedy is what to do about an error of the server whose own text says only what is wrong; "" for others.
func remedy(k *Keys, err error) string {
	if !WrongType(err) {
		return ""
	}
	return fmt.Sprintf("; %q, or a helper of it such as %q, is another program's: use another key (WithPrefix), or delete that one", k.Lock, k.Queue())
}
