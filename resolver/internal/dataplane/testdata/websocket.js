// A client and a server of the npm package ws:
//   serve PORT   a server that sends back what it gets
//   talk PORT    a client that says something short and something long
'use strict'
const { WebSocket, WebSocketServer } = require('ws')

const [command, number] = process.argv.slice(2)
const say = (what) => console.log(JSON.stringify(what))
process.stdin.on('end', () => process.exit(0)).resume()

const commands = {
  serve () {
    const server = new WebSocketServer({ host: '127.0.0.1', port: Number(number) }, () => say({ serving: true }))
    server.on('connection', (c) => c.on('message', (data, isBinary) => c.send(data, { binary: isBinary })))
  },
  talk () {
    const client = new WebSocket(`ws://127.0.0.1:${number}/play?room=1`)
    const long = Buffer.alloc(1 << 20, 'burrow')
    const heard = {}
    client.on('open', () => { client.send('hello'); client.send(long) })
    client.on('message', (data, isBinary) => {
      if (!isBinary) { heard.text = String(data); return }
      heard.same = long.equals(data)
      say(heard)
    })
    client.on('unexpected-response', (request, response) => say({ status: response.statusCode, retry: response.headers['retry-after'] }))
    client.on('error', (err) => say({ error: String(err) }))
    client.on('close', () => say({ closed: true }))
  }
}
commands[command]()
