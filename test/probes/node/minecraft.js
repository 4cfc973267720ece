// A Minecraft Java server of the npm package minecraft-protocol, and players of
// the same package who log in to it. It says "listening PORT" once it answers,
// and takes "join NAME" and "leave NAME" on its standard input.
'use strict'
const readline = require('node:readline')
const minecraft = require('minecraft-protocol')

const version = '1.20.4'
const players = new Map()

const server = minecraft.createServer({
  host: '127.0.0.1',
  port: 0,
  version,
  maxPlayers: 7,
  motd: 'A dormouse',
  'online-mode': false
})
server.on('listening', () => console.log('listening', server.socketServer.address().port))

function join (username) {
  const port = server.socketServer.address().port
  const player = minecraft.createClient({ host: '127.0.0.1', port, username, version, auth: 'offline' })
  player.once('success', () => console.log('joined', username))
  player.once('end', () => console.log('left', username))
  player.on('error', (err) => console.error(err))
  players.set(username, player)
}

const commands = readline.createInterface({ input: process.stdin })
commands.on('line', (line) => {
  const [command, name] = line.split(' ')
  if (command === 'join') join(name)
  if (command === 'leave') players.get(name).end('bye')
})
commands.on('close', () => process.exit(0))
