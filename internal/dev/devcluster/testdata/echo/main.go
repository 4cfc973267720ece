// Command echo returns what it is sent, by TCP and UDP on port 7777. With any
// argument it only says hello, for a test of exec.
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"os"
)

func main() {
	if len(os.Args) > 1 {
		fmt.Println("hello")
		return
	}
	packets, err := net.ListenPacket("udp", ":7777")
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		buffer := make([]byte, 2048)
		for {
			n, from, err := packets.ReadFrom(buffer)
			if err != nil {
				log.Fatal(err)
			}
			_, _ = packets.WriteTo(buffer[:n], from)
		}
	}()
	listener, err := net.Listen("tcp", ":7777")
	if err != nil {
		log.Fatal(err)
	}
	log.Print("listening")
	for {
		conn, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			defer conn.Close()
			_, _ = io.Copy(conn, conn)
		}()
	}
}
